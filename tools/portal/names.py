"""Names of people and places, and pastimes. All proper names are made up."""

from __future__ import annotations

WOMEN = (
    "Abigail Adaeze Aisha Alma Amara Ana Anneliese Beatriz Bernice Bettina Bridget Camila Carmen "
    "Celeste Chiara Clara Constance Dana Deborah Delia Doreen Dorothy Edith Eileen Elena Elif "
    "Esther Eunice Fatima Faye Florence Frances Gail Gloria Greta Gwen Hana Harriet Hazel Helga "
    "Henrietta Ida Imani Ingrid Irene Iris Ivy Jacinta Janelle Jean Joan Josefina Joyce Judith "
    "Kamala Karin Keiko Kendra Lakshmi Latoya Leila Lena Leonora Lorraine Lucia Mabel Magda Maeve "
    "Margaret Marisol Marlene Maxine Mei Miriam Nadia Naomi Nora Noreen Olive Pauline Pearl Petra "
    "Philippa Phyllis Priya Ramona Renata Rosalind Rosa Ruth Sabine Salma Selma Shirley Simone "
    "Soledad Svetlana Tamsin Tanya Teresa Thandiwe Thelma Ursula Vera Verna Wanda Yara Yesenia "
    "Yolanda Zainab Zora"
).split()

MEN = (
    "Abdul Alvin Amir Andre Anton Arjun Arthur Aurelio Barry Basil Benedict Bernard Boris Calvin "
    "Cedric Cesar Chidi Clifford Cormac Cyril Dale Darnell Dennis Desmond Diego Dmitri Duncan "
    "Earl Edgar Emeka Emil Ernesto Esteban Eugene Fabian Felix Fergus Floyd Franklin Gareth "
    "Gerald Gilbert Gordon Gustavo Hakeem Hal Harold Hector Herman Hiroshi Homer Howard Hugo "
    "Ibrahim Ignacio Ira Isaac Ivan Jamal Javier Jerome Joaquin Kamal Keith Kenji Lamar Laszlo "
    "Leland Leon Lester Lionel Lloyd Luther Malik Manuel Marcus Marvin Mateo Maurice Melvin Milo "
    "Mohan Murray Nabil Neil Norman Omar Orlando Oscar Otto Pablo Percy Rafael Raj Ramon Randall "
    "Reggie Roland Roscoe Rupert Samir Seamus Sergei Stanley Tariq Terrence Tomas Trevor Vernon "
    "Victor Vikram Walter Wendell Winston Yusuf"
).split()

GIRLS = (
    "Ada Aria Bella Cora Daisy Eliza Emi Evie Freya Hattie Ines Isla Juno Kaia Lila Lottie Luna "
    "Maisie Mila Nell Noor Penny Phoebe Pia Piper Quinn Rosie Ruby Sadie Skye Sienna Talia Tess "
    "Tilly Willa Wren Zadie Zoe"
).split()

BOYS = (
    "Asher Arlo Beau Bodhi Caleb Cody Dex Eli Ezra Finn Gus Hank Hugo Idris Jonah Jude Kai Kofi "
    "Leo Levi Luca Mack Max Micah Milo Nico Oren Otis Owen Ravi Rex Rowan Sammy Silas Theo Toby "
    "Wyatt Zane"
).split()

SURNAMES = (
    "Abernew Achterberg Adeyoba Alcaron Allenby Ambrozi Anselmo Appiah-Reed Arkwell Ashdown "
    "Balakris Barreda Bascombe Beaumaris Bellweather Berglund Birdsong Bonaventi Borowiec "
    "Brackett Brightling Bukhalter Camarena Castellan Chakrabart Chiswick Clatterbuck Colquist "
    "Comstock Cuthbert Dabrowny Dalrymple Danforth Delacosta Demirkan Dinwiddie Dombrow Draycott "
    "Dunkley Eastham Eberhart Egerton Ekwueme Ellsberry Escobedo Fairweather Farrukh Fazekas "
    "Fitzhugh Flannigan Fothergill Frobisher Galbraith Gallimore Garabedian Ghorbani Grabowny "
    "Greenhalgh Gunderson Habermehl Hackworth Hairston Hargreave Hashemi Hathersage Hendry "
    "Hibbert Huxtable Ibarrondo Ilesanmi Ingersoll Iwasaki-Poe Jaramillo Jellicoe Jernigan "
    "Kapoor-Lane Kazanjian Kilbride Kowalczuk Kurihara Lachance Larkspur Lattimore Lindqvist "
    "Littlejohn Luongo Macready Mahabir Mandelbrow Marchetti Mbeki-Ross McElhaney Mikkelsen "
    "Mukherji Nakagawa Nettleton Nieminen Northcott Nwosu Oakeshott Odhiambo Olander Ouellette "
    "Papadakis Paternoster Pemberton Petrosyan Pickersgill Quackenbush Quesada Quimby Rademaker "
    "Rahimov Ramsbottom Redfern Rezaei Rockwood Rosenquist Rutherglen Saldivar Sarkissian "
    "Satterfield Shackleford Skovgaard Spellman Stavros Swanepoel Takemoto Tallchief Thibodeaux "
    "Threlkeld Tomaszek Trelawney Umarov Underhill Vandermeer Varghese Villalobos Wainwright "
    "Wexler Whitlock Winterbourne Wojcik Yarborough Zapata Zimmerlein Zubiri"
).split()

DOCTORS = (
    "Vantrell Maddern Pelletrau Sorvane Ibekwell Tanrik Hollisgate Brannoch Czernik Dallowen "
    "Eskarne Fennimoor Grashaw Haverlind Jorvath Kessandar Lindqvarn Mbatheru Nakadori Oyelwin "
    "Prastova Quillane Raventhal Sundaveer Thackwell Umbergo Wrenfield Yoshimar Zelwick Corbetto "
    "Amblerine Bodanske Drummle Farquet Ghoshal-Ire Lomasney"
).split()

CLINICS = (
    "Tollmere Family Clinic", "Wexcombe Health Center", "Ardenway Medical Group",
    "Larkhollow Internal Medicine", "Quarrystone Clinic", "Fallowbridge Primary Care",
    "Merrowdale Clinic", "Sixpenny Hill Practice", "Old Foundry Health",
    "Brackenmoor Family Practice",
)  # fmt: skip

PHARMACIES = (
    "Dunwick Drug", "Pennyfarth Pharmacy", "Oxbarrow Pharmacy", "Sableton Drugs",
    "the Varley St pharmacy", "Kettlevane Pharmacy", "Hobbin's Chemist",
    "the pharmacy inside Grocerland", "Tansy Road Pharmacy", "Mottram Drug",
    "QuickLeaf mail order", "the Fenwater pharmacy",
)  # fmt: skip

INSURERS = (
    "Quellmark Health", "Tavinet PPO", "Ostermere Mutual", "Corvane Health Plan",
    "Harlowin Benefit", "Solbrec Assurance", "Umbervale HMO", "Nortrix Care", "Peldane Choice",
    "Wickstead Advantage",
)  # fmt: skip

TOWNS = (
    "Pell Hollow", "Addlestow", "East Varrin", "Cobble Ferry", "Mosswater", "Little Harran",
    "Bexley Notch", "Rushmoor Flats", "Copperas Bend", "Tamsett", "Ottermouth", "Hagley Cross",
)  # fmt: skip

LABS = (
    "the lab on Ferrin Street", "the Wexcombe lab", "the draw station downstairs",
    "the hospital lab", "your in-house lab", "the lab in Tamsett", "the walk-in lab on Route 9",
    "the lab across from the bank",
)  # fmt: skip

JOBS = (
    "drive a school bus", "teach third grade", "work nights at a warehouse", "run a small bakery",
    "clean offices", "cut hair", "work the front desk at a hotel", "do roofing",
    "drive a delivery van", "stand all day at a register", "milk cows for a living",
    "repair elevators", "am a line cook", "do home care for an older lady",
    "sit at a computer all day", "teach swimming", "lay tile", "work at the county library",
    "am a security guard", "tune pianos", "keep the books for a garage",
    "work rotating shifts at the plant", "run a daycare out of my house", "do landscaping",
    "wait tables", "am studying for my nursing exams", "drive a forklift",
    "sew costumes for a theater", "groom dogs",
)  # fmt: skip

RETIRED = (
    "sing in the church choir", "tend my garden", "volunteer at the food pantry", "play bridge",
    "walk the dog twice a day", "look after the grandchildren", "go to water aerobics",
    "live alone since my husband passed", "live on the third floor with no elevator",
    "no longer drive", "build model trains", "bowl in a league", "keep bees",
    "do the crossword every morning",
)  # fmt: skip
